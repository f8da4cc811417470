"""DIDComm envelopes and headers: pure, no I/O, no clock."""
