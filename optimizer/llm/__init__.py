"""Define the provider port: questions to language models, answered by a server, a person, or a recording."""
