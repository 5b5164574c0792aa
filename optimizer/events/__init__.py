"""Record what happens in a run, and tell webhooks, people and open pages about it."""
