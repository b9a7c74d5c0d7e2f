"""Signing in through a provider of OpenID Connect: docs/guides/control-plane.md.

settings    the file of `tailrace serve --oidc`
fetching    requests to the provider: bounded in time and size
provider    what it says of itself, its keys, and whether it has signed a token
identity    who a token names, and what they may do here
sign_on     signing in with a browser; tokens of programs
"""
