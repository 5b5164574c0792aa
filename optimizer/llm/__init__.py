"""The provider port: questions to language models, whoever answers them: a server, a person, or a record."""
