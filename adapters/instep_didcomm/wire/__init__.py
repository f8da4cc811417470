"""DIDComm envelopes and headers: pure functions, without I/O and clock."""
