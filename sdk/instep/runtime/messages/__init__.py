"""What runs for the messages of a receiver: intake, handler dispatch, requests to the peers."""
