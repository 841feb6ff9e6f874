"""What one step is: the plan, where everything of it lies, and the mask that follows from it."""
