# The check of usual requests while access control is on: whose signature it is, and if that user may.
#
# The reference: `AccessGate.admit`, `protocol/signature.py`. Python admits the first request of a user for a resource on
# a connection, and tells it here (`Guard.learn`). Requests for the same resource pass as long as no user and no quota
# has changed, each with its own signature. All others go to Python, which finds out why and refuses.

cdef extern from "dlfcn.h" nogil:
    void* dlopen(const char* name, int flags)
    void* dlsym(void* library, const char* name)
    int RTLD_LAZY
    int RTLD_NOLOAD

ctypedef int (*sha1_init)(void* state) noexcept nogil
ctypedef int (*sha1_update)(void* state, const void* data, size_t size) noexcept nogil
ctypedef int (*sha1_final)(byte* digest, void* state) noexcept nogil

cdef enum:
    # OpenSSL's SHA_CTX has 96 bytes in every version.
    SHA1_STATE = 128
    SHA1_DIGEST = 20
    SHA1_BLOCK = 64
    SIGNATURE_TEXT = 28
    # Texts of a header that are signed; longer ones are left to Python.
    CONTENT_BYTES = 65536
    # Most secrets of a user, resources kept for a connection, and bytes of a resource's names.
    MOST_SECRETS = 2
    MOST_GRANTED = 64
    GRANT_BYTES = 600

cdef sha1_init library_init = NULL
cdef sha1_update library_update = NULL
cdef sha1_final library_final = NULL


cdef void find_library() noexcept:
    """Use the SHA-1 of the OpenSSL that `hashlib` has loaded, which takes the processor's own instructions for it."""
    global library_init, library_update, library_final
    cdef void* library = dlopen("libcrypto.so.3", RTLD_LAZY | RTLD_NOLOAD)
    if library == NULL:
        library = dlopen("libcrypto.so.1.1", RTLD_LAZY | RTLD_NOLOAD)
    if library == NULL:
        return
    library_init = <sha1_init>dlsym(library, "SHA1_Init")
    library_update = <sha1_update>dlsym(library, "SHA1_Update")
    library_final = <sha1_final>dlsym(library, "SHA1_Final")


cdef struct Keyed:
    # SHA-1 that has taken the inner pad of a secret, and the outer one.
    byte inner[SHA1_STATE]
    byte outer[SHA1_STATE]


cdef class Signer:
    """The secrets of a user, ready to sign. Constant."""
    cdef Keyed keyed[MOST_SECRETS]
    cdef tuple keys
    cdef int count

    def __init__(self, tuple keys, bint use_library=True):
        """keys: `SigningKey` of each secret, at most two. use_library: False to sign by `hashlib` alone."""
        cdef int number
        self.keys = keys
        self.count = 0
        if not use_library or library_init == NULL or library_update == NULL or library_final == NULL:
            return
        for number in range(len(keys)):
            inner, outer = <bytes?>keys[number].inner_pad, <bytes?>keys[number].outer_pad
            assert number < MOST_SECRETS and len(inner) == SHA1_BLOCK and len(outer) == SHA1_BLOCK
            library_init(self.keyed[number].inner)
            library_update(self.keyed[number].inner, PyBytes_AS_STRING(inner), SHA1_BLOCK)
            library_init(self.keyed[number].outer)
            library_update(self.keyed[number].outer, PyBytes_AS_STRING(outer), SHA1_BLOCK)
        self.count = len(keys)

    cdef bint signed(
        self, const byte* text, Py_ssize_t size, const byte* body, Py_ssize_t body_size, const byte* given
    ) except -1:
        """True if `given`, of SIGNATURE_TEXT bytes, signs the text and the body. Takes the same time wherever it
        differs."""
        cdef byte state[SHA1_STATE]
        cdef byte digest[SHA1_DIGEST]
        cdef byte wanted[SIGNATURE_TEXT]
        cdef int number, index
        cdef byte differs
        if not self.count:
            return self.signed_by_objects(text, size, body, body_size, given)
        for number in range(self.count):
            memcpy(state, self.keyed[number].inner, SHA1_STATE)
            library_update(state, text, size)
            library_update(state, body, body_size)
            library_final(digest, state)
            memcpy(state, self.keyed[number].outer, SHA1_STATE)
            library_update(state, digest, SHA1_DIGEST)
            library_final(digest, state)
            put_base64(wanted, digest)
            differs = 0
            for index in range(SIGNATURE_TEXT):
                differs |= wanted[index] ^ given[index]
            if not differs:
                return True
        return False

    cdef bint signed_by_objects(
        self, const byte* text, Py_ssize_t size, const byte* body, Py_ssize_t body_size, const byte* given
    ) except -1:
        cdef bytes content = PyBytes_FromStringAndSize(<const char*>text, size) + PyBytes_FromStringAndSize(
            <const char*>body, body_size
        )
        cdef bytes wanted
        cdef int index
        cdef byte differs
        for key in self.keys:
            wanted = key.sign(content).encode()
            differs = 0
            for index in range(SIGNATURE_TEXT):
                differs |= <byte>PyBytes_AS_STRING(wanted)[index] ^ given[index]
            if not differs:
                return True
        return False


cdef const char* BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef void put_base64(byte* out, const byte* digest) noexcept nogil:
    """Write a digest as base64, with its one `=`."""
    cdef int i
    cdef uint32_t three
    for i in range(7):
        three = <uint32_t>digest[3 * i] << 16 | <uint32_t>digest[3 * i + 1] << 8
        if i < 6:
            three |= digest[3 * i + 2]
        out[4 * i] = BASE64[three >> 18]
        out[4 * i + 1] = BASE64[(three >> 12) & 63]
        out[4 * i + 2] = BASE64[(three >> 6) & 63]
        out[4 * i + 3] = BASE64[three & 63]
    out[27] = 61


cdef class Grants:
    """What Python has admitted on one connection. name: the user who signs; signer: None if the certificate of the
    connection stands for the user. last_code, last_at: of the newest request that passed, 0 before the first one; for
    `access/last_requests.py`."""
    cdef int64_t book_generation, generation
    cdef readonly bytes name
    cdef readonly int64_t last_code
    cdef readonly double last_at
    cdef Signer signer
    cdef set allowed
    cdef bytes last


cdef class Guard:
    """Lets usual requests pass that Python would admit. Owned by remoting-io. passed: number of these.

    book: the users, whose generation grows with every change.
    """
    cdef TableState book
    cdef int64_t generation
    cdef byte* content
    cdef readonly int64_t passed

    def __cinit__(self):
        self.content = <byte*>PyMem_Malloc(CONTENT_BYTES)
        if self.content == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.content)

    def __init__(self, TableState book):
        self.book = book
        find_library()

    def forget(self):
        """Have Python admit everything anew: a user has a quota now."""
        self.generation += 1

    def learn(self, PeerState peer, int64_t book_generation, bytes name, signer, bytes group, bytes topic):
        """Keep that Python admitted a request of a user. book_generation: of before it looked at the user. signer: None
        for the user of a certificate. group: None for a send."""
        cdef byte key[GRANT_BYTES]
        cdef const byte* group_name = NULL
        cdef Py_ssize_t size = 0
        cdef Grants grants
        if group is not None:
            group_name, size = <const byte*>PyBytes_AS_STRING(group), len(group)
        size = grant_key(key, group_name, size, <const byte*>PyBytes_AS_STRING(topic), len(topic))
        if size < 0:
            return
        grants = <Grants?>peer.grants if peer.grants is not None else None
        if (
            grants is None
            or grants.book_generation != book_generation
            or grants.generation != self.generation
            or grants.name != name
            or grants.signer is not signer
            or len(grants.allowed) >= MOST_GRANTED
        ):
            grants = Grants()
            grants.book_generation, grants.generation = book_generation, self.generation
            grants.name, grants.signer = name, signer
            grants.allowed = set()
            peer.grants = grants
        grants.last = PyBytes_FromStringAndSize(<const char*>key, size)
        grants.allowed.add(grants.last)

    cdef bint passes(
        self, PeerState peer, Header* header, int64_t code, const byte* body, Py_ssize_t body_size
    ) except -1:
        """True if Python would admit the request."""
        cdef Grants grants
        cdef Field* ordered[MOST_FIELDS]
        cdef Field* field
        cdef Field* user = NULL
        cdef Field* signature = NULL
        cdef Field* group = NULL
        cdef Field* topic = NULL
        cdef const byte* group_name = NULL
        cdef byte key[GRANT_BYTES]
        cdef int count = 0, index, at, order
        cdef Py_ssize_t size = 0, more
        cdef bint pulls = code == 11 or code == 361
        if peer.grants is None:
            return False
        grants = <Grants?>peer.grants
        if grants.book_generation != self.book.generation or grants.generation != self.generation:
            return False
        for index in range(header.count):
            field = &header.fields[index]
            at = count
            while at:
                order = name_order(field, ordered[at - 1])
                if not order:
                    return False  # twice
                if order > 0:
                    break
                at -= 1
            if at < count:
                memmove(&ordered[at + 1], &ordered[at], (count - at) * sizeof(Field*))
            ordered[at] = field
            count += 1
        for index in range(count):
            field = ordered[index]
            if field.name_size == 9:
                if memcmp(field.name, b"Signature", 9) == 0:
                    signature = field
                    continue
                if memcmp(field.name, b"AccessKey", 9) == 0:
                    user = field
            elif pulls and field.name_size == 13 and memcmp(field.name, b"consumerGroup", 13) == 0:
                group = field
            elif code == 310 or code == 320:
                if field.name_size == 1 and field.name[0] == 98:  # b
                    topic = field
            elif field.name_size == 5 and memcmp(field.name, b"topic", 5) == 0:
                topic = field
            for at in range(<int>field.name_size):
                if field.name[at] >= 0x80:
                    return False  # Java orders such names otherwise
            if size + field.size > CONTENT_BYTES:
                return False
            if field.kind == TEXT:
                memcpy(self.content + size, field.value, field.size)
                size += field.size
            elif field.kind == ESCAPED:
                more = unescape(field.value, field.size, self.content + size)
                if more < 0:
                    return False
                size += more
            else:
                return False
        if topic == NULL or topic.kind != TEXT or (pulls and (group == NULL or group.kind != TEXT)):
            return False
        more = 0
        if group != NULL:
            group_name, more = group.value, group.size
        more = grant_key(key, group_name, more, topic.value, topic.size)
        if more < 0 or not is_granted(grants, key, more):
            return False
        if user == NULL or not user.size:
            if grants.signer is not None:
                return False
        else:
            if grants.signer is None or user.kind != TEXT or user.size != PyBytes_GET_SIZE(grants.name):
                return False
            if memcmp(user.value, PyBytes_AS_STRING(grants.name), user.size) != 0:
                return False
            if signature == NULL or signature.kind != TEXT or signature.size != SIGNATURE_TEXT:
                return False
            if not grants.signer.signed(self.content, size, body, body_size, signature.value):
                return False
        self.passed += 1
        grants.last_code, grants.last_at = code, peer.last_active
        return True


cdef inline int name_order(const Field* one, const Field* other) noexcept nogil:
    """Compare the names of two fields: below 0, 0, above 0."""
    cdef Py_ssize_t size = min(one.name_size, other.name_size)
    cdef int order
    if size and one.name[0] != other.name[0]:  # as the letters of a send do
        return <int>one.name[0] - <int>other.name[0]
    order = memcmp(one.name, other.name, size)
    if order:
        return order
    return (one.name_size > other.name_size) - (one.name_size < other.name_size)


cdef Py_ssize_t grant_key(
    byte* key, const byte* group, Py_ssize_t group_size, const byte* topic, Py_ssize_t topic_size
) noexcept nogil:
    """Write what a request asks for; return its size, -1 if it is too long. group: NULL for a send."""
    cdef uint32_t length = 0xFFFFFFFF if group == NULL else <uint32_t>group_size
    if 4 + group_size + topic_size > GRANT_BYTES:
        return -1
    memcpy(key, &length, 4)
    if group != NULL:
        memcpy(key + 4, group, group_size)
    memcpy(key + 4 + group_size, topic, topic_size)
    return 4 + group_size + topic_size


cdef bint is_granted(Grants grants, const byte* key, Py_ssize_t size) except -1:
    cdef bytes wanted
    if PyBytes_GET_SIZE(grants.last) == size and memcmp(PyBytes_AS_STRING(grants.last), key, size) == 0:
        return True
    wanted = PyBytes_FromStringAndSize(<const char*>key, size)
    if wanted not in grants.allowed:
        return False
    grants.last = wanted
    return True
