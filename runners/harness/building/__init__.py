"""Build Python candidates ahead of their evaluation, and describe the calls that builds need to see."""
