"""What runs inside the sandbox: standard library only, started by path, not as a part of `branchwise`.

Two processes: the *candidate* holds a program that nobody trusts, the *referee* holds the tests. They share
a socket over which only plain data goes, so the program never sees a test, and nothing that it does to its
own interpreter (ends it, prints, redefines what `assert` or `==` mean) can pass one.
"""
