"""Between engine and screen: the link, the recorded steps, where the view stands, and the frame to draw."""
