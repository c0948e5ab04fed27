"""What `rocketbox doctor` looks at: the machine, the place, the store. Reads only; imports no Django."""
