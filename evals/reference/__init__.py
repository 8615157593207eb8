"""The reference family: small real models, the tasks they solve and the script that trains them."""
