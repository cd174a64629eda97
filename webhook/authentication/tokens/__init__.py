"""Bearer tokens: JWT verification, the key sets behind it, and revocations."""
