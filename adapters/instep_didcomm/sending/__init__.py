"""Our own messages: numbered, kept, sent, sent again."""
