"""Why a TLS handshake failed, in words that are stable and few enough to label a metric."""

import ssl

# X509_V_ERR_*: what the verification of a client's chain says.
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
    """Return the word for it; `handshake_failed` where there is no better one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _BY_VERIFY_CODE.get(error.verify_code, "handshake_certificate_foreign")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if "_ALERT_" in reason:
            return "handshake_refused_by_client"  # most often it does not trust our certificate: see its caBundle
        return _BY_SSL_REASON.get(reason, "handshake_failed")
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return "handshake_timeout"
    return "handshake_cut"
