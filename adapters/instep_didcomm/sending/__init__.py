"""Our own messages: numbers, stores, sends and resends them."""
