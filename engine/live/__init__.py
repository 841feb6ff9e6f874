"""An engine in a thread of its own: commands in, state and records out. What feeds it, and a recording played
the same way."""
