"""Messages/s of numbered sequences."""
