"""What people and their monitoring see over HTTP."""
