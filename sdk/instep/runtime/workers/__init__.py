"""A consumer whose streams are spread over worker processes."""
