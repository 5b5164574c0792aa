"""Template tags of the site itself."""
