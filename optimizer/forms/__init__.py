"""Forms: what a person may type, checked beside the field."""
