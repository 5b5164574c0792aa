"""Collect every way of cheating that was seen in the field, as a kernel that tries it and a twin that does not."""
