"""Capture: what torch.export or AOTAutograd records, as golow's graph."""
