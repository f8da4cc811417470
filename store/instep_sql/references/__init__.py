"""Where each entity stands and what it refers to: tables that are derived from the entities."""
