"""What the verbs do: one function each, values in, values out; nothing is printed here."""
