"""Handle text from outside: make it storable, show hostile characters, parse numbers and mentions."""
