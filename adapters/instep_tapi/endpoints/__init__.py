"""Which instance of a provider is used, and which of its streams."""
