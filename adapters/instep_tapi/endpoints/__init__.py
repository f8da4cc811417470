"""The choice of a provider's instance, and of the streams to follow."""
