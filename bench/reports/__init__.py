"""Reports of a BICEPS device, and its whole MDIB, into a store: floor and product."""
