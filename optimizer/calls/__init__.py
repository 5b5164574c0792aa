"""Ask language models: the life of a call from the question to the stored answer, and who answers it."""
