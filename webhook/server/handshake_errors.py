"""Reasons of failed TLS handshakes, as metric labels."""

import ssl

# X509_V_ERR_*: results of verifying a client's chain.
_EXPIRED, _NOT_YET_VALID, _PURPOSE = 10, 9, 26
_BY_VERIFY_CODE = {
    _EXPIRED: "handshake_certificate_expired",
    _NOT_YET_VALID: "handshake_certificate_not_yet_valid",
    _PURPOSE: "handshake_certificate_purpose",
}
_BY_SSL_REASON = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "handshake_no_certificate",
    "UNSUPPORTED_PROTOCOL": "handshake_protocol",
    "WRONG_VERSION_NUMBER": "handshake_protocol",
    "HTTP_REQUEST": "handshake_protocol",
}


def handshake_failure(error: OSError) -> str:
    """Return the reason of an error; `handshake_failed` if it has no specific one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _BY_VERIFY_CODE.get(error.verify_code, "handshake_certificate_foreign")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if "_ALERT_" in reason:
            return "handshake_refused_by_client"  # usually it does not trust the serving certificate: see its caBundle
        return _BY_SSL_REASON.get(reason, "handshake_failed")
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return "handshake_timeout"
    return "handshake_cut"
