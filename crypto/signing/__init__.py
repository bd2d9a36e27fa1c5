"""What is signed and recorded: canonical bytes, signatures, statements, Merkle trees and heads.

No encryption lives here, and nothing that keeps a value secret.
"""
