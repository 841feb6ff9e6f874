"""The screens: the main one, and those that ask, explain or apologise in front of it."""
