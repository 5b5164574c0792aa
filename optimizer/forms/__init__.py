"""Define the forms, with error messages beside the fields."""
