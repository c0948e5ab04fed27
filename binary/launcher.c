/* The executable of the one-file build: a Python interpreter that takes everything it needs out of this file.

   Behind the program lie libpython, extension modules, bytecode and data files, put there by build.py. Nothing is
   unpacked to disk: a shared library is copied into memory that has a file descriptor (memfd) and loaded from there, so
   it neither matters whether /tmp can be written or executed, nor does anything stay behind. There is no second
   process either: this one becomes `rocketbox`, with its signals and its exit status. */

#define _GNU_SOURCE
#include <Python.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

#define LIBRARIES 8

struct part {
    uint64_t begin, size;
};

/* Where things lie in this file; build.py finds the mark and fills in the rest. */
static volatile struct {
    char mark[24];
    struct part contents;             /* the table of everything, for start.py */
    struct part libraries[LIBRARIES]; /* what libpython needs, then libpython; a size of 0 ends them */
} places = {"rocketbox's places are: ", {0, 0}, {{0, 0}}};

static void refuse(const char *what, const char *why) {
    fprintf(stderr, "rocketbox: %s: %s.\n", what, why);
    exit(2);
}

/* An open file for a library: in memory, or without a name in a directory when the kernel grants no memory that can be
   executed (vm.memfd_noexec=2). start.py does the same. */
static int new_file(int in_memory) {
    if (in_memory) {
        int fd = memfd_create("rocketbox", MFD_CLOEXEC | MFD_EXEC);
        return fd < 0 && errno == EINVAL ? memfd_create("rocketbox", MFD_CLOEXEC) : fd; /* before Linux 6.3 */
    }
    const char *directory = getenv("TMPDIR");
    return open(directory && *directory ? directory : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0700);
}

/* Returns the handle, or NULL with errno or dlerror() in *why. */
static void *load(int program, struct part part, int order, int in_memory, const char **why) {
    int fd = new_file(in_memory);
    if (fd < 0) {
        *why = strerror(errno);
        return NULL;
    }
    off_t at = (off_t)part.begin;
    while (at < (off_t)(part.begin + part.size)) {
        ssize_t sent = sendfile(fd, program, &at, part.begin + part.size - (uint64_t)at);
        if (sent <= 0) {
            *why = sent ? strerror(errno) : "the file is shorter than it was made";
            close(fd);
            return NULL;
        }
    }
    /* The loader remembers a library by its path, and descriptors are used again: so no two paths are the same. */
    char path[64 + 2 * LIBRARIES] = "/proc/self/fd/";
    for (int i = 0; i < order; i++) strcat(path, "./");
    sprintf(path + strlen(path), "%d", fd);
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!handle) *why = dlerror();
    close(fd);
    return handle;
}

/* A function of libpython's. */
static void *function(void *python, const char *name) {
    void *found = dlsym(python, name);
    if (!found) refuse("this file is damaged", dlerror());
    return found;
}
#define PYTHON(name) ((__typeof__(&name))function(python, #name))

int main(int argc, char **argv) {
    int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (program < 0) refuse("/proc is needed, and cannot be read", strerror(errno));
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) refuse("/proc/self/exe cannot be read", strerror(errno));
    path[length] = 0;
    if (!places.contents.size) refuse("this file is damaged", "it has nothing behind the program");

    void *python = NULL;
    int in_memory = 1;
    for (int i = 0; i < LIBRARIES && places.libraries[i].size; i++) {
        struct part part = {places.libraries[i].begin, places.libraries[i].size};
        const char *why = "";
        python = load(program, part, i, in_memory, &why);
        if (!python && in_memory) {
            in_memory = 0;
            python = load(program, part, i, in_memory, &why);
        }
        if (!python) refuse("libraries can be loaded neither from memory nor from TMPDIR or /tmp", why);
    }

    PyPreConfig pre;
    PYTHON(PyPreConfig_InitIsolatedConfig)(&pre);
    pre.utf8_mode = 1; /* whatever the locale, as on a machine of today */
    PyConfig config;
    PyStatus status = PYTHON(Py_PreInitialize)(&pre);
    __typeof__(&PyStatus_Exception) failed = PYTHON(PyStatus_Exception);
    if (failed(status)) PYTHON(Py_ExitStatusException)(status);
    PYTHON(PyConfig_InitIsolatedConfig)(&config);
    config.install_signal_handlers = 1; /* as `python` does: SIGPIPE is ignored, Ctrl-C interrupts */
    config.site_import = 0;
    config.write_bytecode = 0;
    config.pathconfig_warnings = 0;
    config.parse_argv = 0;
    config.module_search_paths_set = 1;

    __typeof__(&PyConfig_SetBytesString) set = PYTHON(PyConfig_SetBytesString);
    status = set(&config, &config.executable, path);
    wchar_t **same[] = {&config.program_name,     &config.prefix,       &config.base_prefix, &config.exec_prefix,
                        &config.base_exec_prefix, &config.stdlib_dir,   &config.platlibdir};
    for (size_t i = 0; i < sizeof same / sizeof *same && !failed(status); i++) status = set(&config, same[i], path);
    if (!failed(status))
        status = PYTHON(PyWideStringList_Append)(&config.module_search_paths, config.executable);
    if (!failed(status)) status = PYTHON(PyConfig_SetBytesArgv)(&config, argc, argv);
    if (!failed(status))
        status = set(&config, &config.run_command, "import sys; from appliance.main import main; sys.exit(main())");
    if (!failed(status)) status = PYTHON(Py_InitializeFromConfig)(&config);
    PYTHON(PyConfig_Clear)(&config);
    if (failed(status)) PYTHON(Py_ExitStatusException)(status);
    /* First of all, since from 3.13 on Python itself imports modules before it runs a command. */
    char start[160];
    sprintf(start, "import rocketbox_start; rocketbox_start.start(%d, %llu, %llu, %d)", program,
            (unsigned long long)places.contents.begin, (unsigned long long)places.contents.size, in_memory);
    if (PYTHON(PyRun_SimpleStringFlags)(start, NULL)) return 2;
    return PYTHON(Py_RunMain)();
}
