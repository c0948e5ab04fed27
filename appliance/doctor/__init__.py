"""What `rocketbox doctor` checks: machine, place, store, audit log. Reads only; imports no Django."""
