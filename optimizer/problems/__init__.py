"""Import problems into the database."""
