"""How to read the figures of attacks: one text an attack, and what all of them share."""
