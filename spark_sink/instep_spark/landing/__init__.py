"""The sink: commits become rows of the landing table `changes`."""
