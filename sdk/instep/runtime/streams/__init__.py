"""The runtime of each stream of a consumer: worker, read-ahead, discovery, audit, fan-out."""
