# Endless lines.
yes "and so on"
