"""Who runs, and with how many tokens: policies, the mechanism they share, slots and KV blocks."""
