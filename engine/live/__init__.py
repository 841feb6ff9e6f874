"""An engine in a thread of its own: commands in, state and records out. And what feeds it."""
