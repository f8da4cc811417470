"""What `instep plugin new` writes: a source over TCP with its tests. `my_plugin` is the name."""
