"""Names that C and C++ have given away: keywords, and what their standard library and compilers define.

These are the functions, types, objects and macros of the headers of C99 to C23, what the GNU C library declares in them
in addition to the standard for a compiler that is told nothing else (much of POSIX), and macros that compilers define
by themselves. Families are known by their form: ``FE_INVALID`` and all that begin so, variants of a function for other
types (``sinf``) or with an ending of the C library's (``rand_r``, ``getc_unlocked``, ``lseek64``).
"""

from __future__ import annotations

import re

_KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    alignas alignof and and_eq asm bitand bitor bool catch char8_t char16_t char32_t class co_await co_return co_yield
    compl concept const_cast consteval constexpr constinit decltype delete dynamic_cast explicit export false friend
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast
    requires static_assert static_cast template this thread_local throw true try typeid typename typeof typeof_unqual
    using virtual wchar_t xor xor_eq
"""
_REALS = """
    acos acosh asin asinh atan atan2 atanh cabs cacos cacosh canonicalize carg casin casinh catan catanh cbrt ccos
    ccosh ceil cexp cimag clog conj copysign cos cosh cpow cproj creal csin csinh csqrt ctan ctanh drem erf erfc exp
    exp10 exp2 expm1 fabs fdim finite floor fma fmax fmaximum fmaximum_mag fmaximum_mag_num fmaximum_num fmaxmag
    fmin fminimum fminimum_mag fminimum_mag_num fminimum_num fminmag fmod frexp fromfp fromfpx gamma getpayload
    hypot ilogb isinf isnan j0 j1 jn ldexp lgamma llogb llrint llround log log10 log1p log2 logb lrint lround modf
    nan nearbyint nextafter nextdown nexttoward nextup pow remainder remquo rint round roundeven scalb scalbln
    scalbn setpayload setpayloadsig significand sin sincos sinh sqrt strfrom strto tan tanh tgamma totalorder
    totalordermag trunc ufromfp ufromfpx wcsto y0 y1 yn
"""  # with the ending of a type after them, too
_LIBRARY = """
    a64l abort abs access acct alarm aligned_alloc alloca arc4random arc4random_buf arc4random_uniform asctime
    asprintf assert assert_perror at_quick_exit atexit atof atoi atol atoll bcmp bcopy be16toh be32toh be64toh
    blkcnt64_t blkcnt_t blksize_t brk bsearch btowc bzero c16rtomb c32rtomb c8rtomb caddr_t call_once calloc
    canonicalize_file_name chdir chown chroot ckd_add ckd_mul ckd_sub clearenv clearerr clock clock_adjtime
    clock_getcpuclockid clock_getres clock_gettime clock_nanosleep clock_settime clock_t clockid_t close close_range
    closefrom comparison_fn_t complex confstr cookie_close_function_t cookie_io_functions_t cookie_read_function_t
    cookie_seek_function_t cookie_write_function_t copy_file_range crypt ctermid ctime cuserid dadd daddl daddr_t
    daemon daylight ddiv ddivl dev_t dfma dfmal difftime div div_t dmul dmull double_t dprintf drand48 dsqrt dsqrtl
    dsub dsubl dup dup2 dup3 duplocale dysize eaccess ecvt endusershell environ erand48 errno error_t euidaccess
    execl execle execlp execv execve execveat execvp execvpe exit explicit_bzero faccessat fadd faddl fchdir fchown
    fchownat fclose fcloseall fcvt fd_mask fd_set fdatasync fdiv fdivl fdopen feclearexcept fedisableexcept
    feenableexcept fegetenv fegetexcept fegetexceptflag fegetmode fegetround feholdexcept femode_t fenv_t feof
    feraiseexcept ferror fesetenv fesetexcept fesetexceptflag fesetmode fesetround fetestexcept fetestexceptflag
    feupdateenv fexcept_t fexecve fflush ffma ffmal ffs ffsl ffsll fgetc fgetpos fgets fgetwc fgetws fileno float_t
    flockfile fmemopen fmul fmull fopen fopencookie fork fpathconf fpclassify fpos64_t fpos_t fpregset_t fprintf
    fputc fputs fputwc fputws fread free free_aligned_sized free_sized freelocale freopen fsblkcnt64_t fsblkcnt_t
    fscanf fseek fseeko fsetpos fsfilcnt64_t fsfilcnt_t fsid_t fsqrt fsqrtl fsub fsubl fsync ftell ftello ftruncate
    ftrylockfile funlockfile fwide fwprintf fwrite fwscanf gcvt get_current_dir_name getc getchar getcwd getdate
    getdate_err getdelim getdomainname getdtablesize getegid getentropy getenv geteuid getgid getgroups gethostid
    gethostname getline getloadavg getlogin getopt getpagesize getpass getpgid getpgrp getpid getppid getpt
    getresgid getresuid gets getsid getsubopt gettid getuid getusershell getw getwc getwchar getwd gid_t gmtime
    grantpt greg_t gregset_t group_member gsignal hppa htobe16 htobe32 htobe64 htole16 htole32 htole64 i386 i486
    i586 i686 id_t imaginary imaxabs imaxdiv imaxdiv_t index initstate ino64_t ino_t isalnum isalpha isascii isatty
    isblank iscanonical iscntrl isctype isdigit iseqsig isfinite isgraph isgreater isgreaterequal isless islessequal
    islessgreater islower isnormal isprint ispunct issignaling isspace issubnormal isunordered isupper iswalnum
    iswalpha iswblank iswcntrl iswctype iswdigit iswgraph iswlower iswprint iswpunct iswspace iswupper iswxdigit
    isxdigit iszero jmp_buf jrand48 key_t kill kill_dependency killpg l64a L_ctermid L_cuserid L_tmpnam labs lchown
    lcong48 ldiv ldiv_t le16toh le32toh le64toh link linkat linux llabs lldiv lldiv_t locale_t localeconv localtime
    lockf loff_t longjmp lrand48 lseek m68k main malloc math_errhandling max_align_t mblen mbrlen mbrtoc16 mbrtoc32
    mbrtoc8 mbrtowc mbsinit mbsnrtowcs mbsrtowcs mbstate_t mbstowcs mbtowc mcontext_t memalignment memccpy memchr
    memcmp memcpy memfrob memmem memmove mempcpy memset memset_explicit mips mkdtemp mkostemp mkostemps mkstemp
    mkstemps mktemp mktime mode_t mrand48 nanosleep newlocale nice nlink_t noreturn nrand48 nullptr_t obstack_printf
    obstack_vprintf off64_t off_t offsetof on_exit once_flag open_memstream open_wmemstream optarg opterr optind
    optopt P_tmpdir pathconf pause pclose perror pid_t pipe pipe2 popen posix_memalign posix_openpt pow10 powerpc
    pread printf profil program_invocation_name program_invocation_short_name pselect psiginfo psignal
    pthread_attr_t pthread_barrier_t pthread_barrierattr_t pthread_cond_t pthread_condattr_t pthread_key_t
    pthread_kill pthread_mutex_t pthread_mutexattr_t pthread_once_t pthread_rwlock_t pthread_rwlockattr_t
    pthread_sigmask pthread_sigqueue pthread_spinlock_t pthread_t ptrdiff_t ptsname putc putchar putenv puts putw
    putwc putwchar pwrite qecvt qfcvt qgcvt qsort quad_t quick_exit raise rand random read readlink readlinkat
    realloc reallocarray realpath register_t remove rename renameat renameat2 revoke rewind rindex rmdir rpmatch
    sa_handler sa_sigaction sbrk scanf secure_getenv seed48 select setbuf setbuffer setdomainname setegid setenv
    seteuid setgid sethostid sethostname setjmp setlinebuf setlocale setlogin setpgid setpgrp setregid setresgid
    setresuid setreuid setsid setstate setuid setusershell setvbuf si_addr si_addr_lsb si_arch si_band si_call_addr
    si_fd si_int si_lower si_overrun si_pid si_pkey si_ptr si_status si_stime si_syscall si_timerid si_uid si_upper
    si_utime si_value sig_atomic_t sig_t sigabbrev_np sigaction sigaddset sigaltstack sigandset sigblock sigdelset
    sigdescr_np sigemptyset sigev_notify_attributes sigev_notify_function sigevent_t sigfillset siggetmask
    sighandler_t sighold sigignore siginfo_t siginterrupt sigisemptyset sigismember sigjmp_buf siglongjmp sigmask
    signal signbit signgam sigorset sigpause sigpending sigprocmask sigqueue sigrelse sigreturn sigset sigset_t
    sigsetjmp sigsetmask sigstack sigsuspend sigtimedwait sigval_t sigwait sigwaitinfo size_t sleep snprintf
    socklen_t sparc sprintf srand srand48 srandom sscanf ssignal ssize_t stack_t std stderr stdin stdout stpcpy
    stpncpy strcasecmp strcat strchr strcmp strcoll strcpy strcspn strdup strdupa strerror strerrordesc_np
    strerrorname_np strfry strftime strlen strncasecmp strncat strncmp strncpy strndup strndupa strnlen strpbrk
    strptime strrchr strsep strsignal strspn strstr strtoimax strtok strtold strtoll strtoq strtoul strtoull
    strtoumax strtouq strverscmp strxfrm sun suseconds_t swab swprintf swscanf symlink symlinkat sync syncfs syscall
    sysconf system sysv_signal tcgetpgrp tcsetpgrp tempnam tgkill time time_t timegm timelocal timer_create
    timer_delete timer_getoverrun timer_gettime timer_settime timer_t timespec_get timespec_getres timezone tmpfile
    tmpnam toascii tolower toupper towctrans towlower towupper truncate ttyname ttyslot tzname tzset u_char u_int
    u_int16_t u_int32_t u_int64_t u_int8_t u_long u_quad_t u_short ualarm ucontext_t uid_t uint ulong ungetc ungetwc
    unix unlink unlinkat unlockpt unreachable unsetenv useconds_t uselocale ushort usleep va_arg va_copy va_end
    va_list va_start valloc vasprintf vax vdprintf vfork vfprintf vfscanf vfwprintf vfwscanf vhangup vprintf vscanf
    vsnprintf vsprintf vsscanf vswprintf vswscanf vwprintf vwscanf wcpcpy wcpncpy wcrtomb wcscasecmp wcscat wcschr
    wcschrnul wcscmp wcscoll wcscpy wcscspn wcsdup wcsftime wcslen wcsncasecmp wcsncat wcsncmp wcsncpy wcsnlen
    wcsnrtombs wcspbrk wcsrchr wcsrtombs wcsspn wcsstr wcstoimax wcstok wcstold wcstoll wcstombs wcstoq wcstoul
    wcstoull wcstoumax wcstouq wcswidth wcsxfrm wctob wctomb wctrans wctrans_t wctype wctype_t wcwidth wint_t
    wmemchr wmemcmp wmemcpy wmemmove wmempcpy wmemset wprintf write wscanf ADJ_ESTERROR ADJ_FREQUENCY ADJ_MAXERROR
    ADJ_MICRO ADJ_NANO ADJ_OFFSET ADJ_OFFSET_SINGLESHOT ADJ_OFFSET_SS_READ ADJ_SETOFFSET ADJ_STATUS ADJ_TAI ADJ_TICK
    ADJ_TIMECONST AIO_PRIO_DELTA_MAX BC_BASE_MAX BC_DIM_MAX BC_SCALE_MAX BC_STRING_MAX BIG_ENDIAN BUFSIZ BUS_ADRALN
    BUS_ADRERR BUS_MCEERR_AO BUS_MCEERR_AR BUS_OBJERR BYTE_ORDER CHARCLASS_NAME_MAX CLD_CONTINUED CLD_DUMPED
    CLD_EXITED CLD_KILLED CLD_STOPPED CLD_TRAPPED CLOCK_BOOTTIME CLOCK_BOOTTIME_ALARM CLOCK_MONOTONIC
    CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME CLOCK_REALTIME_ALARM
    CLOCK_REALTIME_COARSE CLOCK_TAI CLOCK_THREAD_CPUTIME_ID CLOCKS_PER_SEC CLOSE_RANGE_CLOEXEC CLOSE_RANGE_UNSHARE
    CMPLX CMPLXF CMPLXL COLL_WEIGHTS_MAX DECIMAL_DIG DELAYTIMER_MAX E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EADV
    EAFNOSUPPORT EAGAIN EALREADY EBADE EBADF EBADFD EBADMSG EBADR EBADRQC EBADSLT EBFONT EBUSY ECANCELED ECHILD
    ECHRNG ECOMM ECONNABORTED ECONNREFUSED ECONNRESET EDEADLK EDEADLOCK EDESTADDRREQ EDOM EDOTDOT EDQUOT EEXIST
    EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EHWPOISON EIDRM EILSEQ EINPROGRESS EINTR EINVAL EIO EISCONN EISDIR EISNAM
    EKEYEXPIRED EKEYREJECTED EKEYREVOKED EL2HLT EL2NSYNC EL3HLT EL3RST ELIBACC ELIBBAD ELIBEXEC ELIBMAX ELIBSCN
    ELNRNG ELOOP EMEDIUMTYPE EMFILE EMLINK EMSGSIZE EMULTIHOP ENAMETOOLONG ENAVAIL ENETDOWN ENETRESET ENETUNREACH
    ENFILE ENOANO ENOBUFS ENOCSI ENODATA ENODEV ENOENT ENOEXEC ENOKEY ENOLCK ENOLINK ENOMEDIUM ENOMEM ENOMSG ENONET
    ENOPKG ENOPROTOOPT ENOSPC ENOSR ENOSTR ENOSYS ENOTBLK ENOTCONN ENOTDIR ENOTEMPTY ENOTNAM ENOTRECOVERABLE
    ENOTSOCK ENOTSUP ENOTTY ENOTUNIQ ENXIO EOF EOPNOTSUPP EOVERFLOW EOWNERDEAD EPERM EPFNOSUPPORT EPIPE EPROTO
    EPROTONOSUPPORT EPROTOTYPE ERANGE EREMCHG EREMOTE EREMOTEIO ERESTART ERFKILL EROFS ESHUTDOWN ESOCKTNOSUPPORT
    ESPIPE ESRCH ESRMNT ESTALE ESTRPIPE ETIME ETIMEDOUT ETOOMANYREFS ETXTBSY EUCLEAN EUNATCH EUSERS EWOULDBLOCK
    EXDEV EXFULL EXIT_FAILURE EXIT_SUCCESS EXPR_NEST_MAX F_LOCK F_OK F_TEST F_TLOCK F_ULOCK FD_CLR FD_ISSET FD_SET
    FD_SETSIZE FD_ZERO FILE FILENAME_MAX FOPEN_MAX FPE_CONDTRAP FPE_FLTDIV FPE_FLTINV FPE_FLTOVF FPE_FLTRES
    FPE_FLTSUB FPE_FLTUND FPE_FLTUNK FPE_INTDIV FPE_INTOVF HOST_NAME_MAX I ILL_BADIADDR ILL_BADSTK ILL_COPROC
    ILL_ILLADR ILL_ILLOPC ILL_ILLOPN ILL_ILLTRP ILL_PRVOPC ILL_PRVREG INFINITY IOV_MAX L_INCR L_SET L_XTND LINE_MAX
    LITTLE_ENDIAN LOGIN_NAME_MAX MATH_ERREXCEPT MATH_ERRNO MAX_CANON MAX_INPUT MAXFLOAT MB_CUR_MAX MINSIGSTKSZ
    MIPSEB MIPSEL MOD_CLKA MOD_CLKB MOD_ESTERROR MOD_FREQUENCY MOD_MAXERROR MOD_MICRO MOD_NANO MOD_OFFSET MOD_STATUS
    MOD_TAI MOD_TIMECONST MQ_PRIO_MAX NAME_MAX NAN NDEBUG NFDBITS NGREG NGROUPS_MAX NL_ARGMAX NL_LANGMAX NL_MSGMAX
    NL_NMAX NL_SETMAX NL_TEXTMAX NSIG NULL NZERO ONCE_FLAG_INIT PATH_MAX PDP_ENDIAN PIPE_BUF POLL_ERR POLL_HUP
    POLL_IN POLL_MSG POLL_OUT POLL_PRI PPC PTHREAD_DESTRUCTOR_ITERATIONS PTHREAD_KEYS_MAX PTHREAD_STACK_MIN R_OK
    RAND_MAX RE_DUP_MAX REG_CR2 REG_CSGSFS REG_EFL REG_ERR REG_OLDMASK REG_R10 REG_R11 REG_R12 REG_R13 REG_R14
    REG_R15 REG_R8 REG_R9 REG_RAX REG_RBP REG_RBX REG_RCX REG_RDI REG_RDX REG_RIP REG_RSI REG_RSP REG_TRAPNO
    RENAME_EXCHANGE RENAME_NOREPLACE RENAME_WHITEOUT RTSIG_MAX SA_INTERRUPT SA_NOCLDSTOP SA_NOCLDWAIT SA_NODEFER
    SA_NOMASK SA_ONESHOT SA_ONSTACK SA_RESETHAND SA_RESTART SA_SIGINFO SA_STACK SEEK_CUR SEEK_DATA SEEK_END
    SEEK_HOLE SEEK_SET SEGV_ACCADI SEGV_ACCERR SEGV_ADIDERR SEGV_ADIPERR SEGV_BNDERR SEGV_MAPERR SEGV_MTEAERR
    SEGV_MTESERR SEGV_PKUERR SEM_VALUE_MAX SI_ASYNCIO SI_ASYNCNL SI_DETHREAD SI_KERNEL SI_MESGQ SI_QUEUE SI_SIGIO
    SI_TIMER SI_TKILL SI_USER SIGEV_NONE SIGEV_SIGNAL SIGEV_THREAD SIGEV_THREAD_ID SS_DISABLE SS_ONSTACK STA_CLK
    STA_CLOCKERR STA_DEL STA_FLL STA_FREQHOLD STA_INS STA_MODE STA_NANO STA_PLL STA_PPSERROR STA_PPSFREQ
    STA_PPSJITTER STA_PPSSIGNAL STA_PPSTIME STA_PPSWANDER STA_RONLY STA_UNSYNC STDERR_FILENO STDIN_FILENO
    STDOUT_FILENO TEMP_FAILURE_RETRY TIME_UTC TIMER_ABSTIME TMP_MAX TRAP_BRANCH TRAP_BRKPT TRAP_HWBKPT TRAP_TRACE
    TRAP_UNK TSS_DTOR_ITERATIONS TTY_NAME_MAX W_OK WCONTINUED WEOF WEXITED WEXITSTATUS WIFCONTINUED WIFEXITED
    WIFSIGNALED WIFSTOPPED WIN32 WIN64 WINNT WNOHANG WNOWAIT WORD_BIT WSTOPPED WSTOPSIG WTERMSIG WUNTRACED X_OK
    XATTR_LIST_MAX XATTR_NAME_MAX XATTR_SIZE_MAX
"""
KEYWORDS = frozenset(_KEYWORDS.split())
LIBRARY = frozenset(_LIBRARY.split())
REALS = re.compile(rf"({'|'.join(_REALS.split())})(f|l|d|f(16|32|64|128)x?)?(_[lr])?")
ENDING = re.compile(r"(_unlocked|_[lr]|64)$")
FAMILIES = re.compile(
    r"u?int(8|16|32|64|ptr|max|_least(8|16|32|64)|_fast(8|16|32|64))_t"
    r"|U?INT(PTR|MAX|_LEAST\d+|_FAST\d+|\d+)_(MIN|MAX|C|WIDTH)|(PTRDIFF|SIZE|SIG_ATOMIC|WCHAR|WINT)_(MIN|MAX|WIDTH)"
    r"|(PRI|SCN)[diouxX]((FAST|LEAST)?\d+|MAX|PTR)"
    r"|(DBL|LDBL|FLT|DEC\d*|ATOMIC|FE|FP|LC|SIG)_[A-Z0-9_]+"
    r"|SIG(ABRT|ALRM|BREAK|BUS|CHLD|CLD|CONT|EMT|FPE|HUP|ILL|INFO|INT|IOT?|KILL|LOST|PIPE|POLL|PROF|PWR|QUIT|RTMAX|RTMIN"
    r"|SEGV|STKFLT|STKSZ|STOP|SYS|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR[12]|VTALRM|WINCH|XCPU|XFSZ)"
    r"|M_(E|LOG2E|LOG10E|LN2|LN10|PI|PI_[24]|[12]_PI|2_SQRTPI|SQRT2|SQRT1_2)(f|l|f\d+x?)?|(HUGE_VAL|SNAN)(F|L|_?F\d+X?)?"
    r"|([SU]?CHAR|U?(SHRT|INT|LONG|LLONG|LONG_LONG)|SSIZE|BOOL|MB_LEN)_(MAX|MIN|WIDTH|BIT)"
    r"|f(32|64)x?(add|sub|mul|div|fma|sqrt)f(32|64|128)x?"
    r"|atomic_\w+|memory_order\w*|(mtx|cnd|thrd|tss)_\w+",
    re.ASCII,
)


def is_reserved(name: str) -> bool:
    """True for a name that C or C++ have given away."""
    if name.endswith("_"):
        return False
    if name in KEYWORDS or name in LIBRARY or ENDING.sub("", name) in LIBRARY:
        return True
    return REALS.fullmatch(name) is not None or FAMILIES.fullmatch(name) is not None
