"""Six short guided scenes: what they show is data (`scenes`), how they are played a module (`play`).

They run on a real engine over a toy model (`engine.toy`): no weights, no waiting, the same every time.
"""
