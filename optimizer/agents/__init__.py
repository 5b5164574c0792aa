"""Define the roles of the papers' agents: their prompts and their answers."""
