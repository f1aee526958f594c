/* The rules of the stand-in for modules and kernels. */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "standin/standin_open.h"
#include "testing/test.h"

#define PAGE    8192u
#define PAGES   6u
#define POOL    0u /* bytes: where in the memory things lie */
#define LIST    (512u << 10)
#define BLOCKS  (LIST + 4096)
#define SUMS    (BLOCKS + 4096)
#define GRANULE (2u << 20)

static struct standin in;
static struct driver d;
static CUcontext context[2];
static CUmodule module;
static CUstream stream;
static CUdeviceptr memory; /* of the first device, whose context is current */

FIXTURE(open_all)
{
    size_t bytes;

    standin_driver_open(STANDIN_MEMORY, &in, &d, context);
    assert_int_equal(d.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(d.module_load(&module, kernels_fatbin(&bytes)), CUDA_SUCCESS);
    assert_int_equal(d.mem_alloc(&memory, GRANULE), CUDA_SUCCESS);
    return 0;
}

FIXTURE(close_all)
{
    in.let_fail("", 0, CUDA_SUCCESS);
    d.context_set(context[0]);
    assert_int_equal(d.mem_free(memory), CUDA_SUCCESS);
    d.module_unload(module);
    d.stream_destroy(stream);
    standin_driver_close(&in, &d);
    return 0;
}

TEST_EACH(open_all, close_all);

static CUfunction function_of(const char *name)
{
    CUfunction f;

    assert_int_equal(d.module_function(&f, module, name), CUDA_SUCCESS);
    return f;
}

/* The first of the two kernels, over pages of the pool. */
static CUresult launch_blocks(CUdeviceptr pool, CUstream on)
{
    union kernels_args args = {.checksum = {.pool = pool,
                                            .list = memory + LIST,
                                            .page_bytes = PAGE,
                                            .n = PAGES,
                                            .units = 1,
                                            .blocks = memory + BLOCKS,
                                            .sums = memory + SUMS}};
    void *params[] = {&args};
    struct kernels_launch how;

    assert_int_equal(kernels_prepare(KERNELS_CHECKSUM_BLOCKS, &args, &how), KERNELS_REFUSED_NONE);
    return d.launch(function_of(how.function), how.grid, 1, 1, how.block, 1, 1, 0, on, params,
                    NULL);
}

static CUresult waited(void)
{
    CUevent event;
    CUresult result;

    assert_int_equal(d.event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    result = d.event_record(event, stream);
    if (result == CUDA_SUCCESS)
        result = d.event_wait(event);
    if (result == CUDA_SUCCESS) /* the device may have been lost before */
        result = d.event_query(event);
    d.event_destroy(event);
    return result;
}

static void put_list(uint32_t last)
{
    uint32_t list[PAGES] = {3, 0, 2, 1, 4, last};

    assert_int_equal(d.copy_to_device(memory + LIST, list, sizeof list), CUDA_SUCCESS);
}

TEST(standin_kernel_is_run_late_and_by_its_own_source)
{
    uint64_t block[PAGES * 2] = {0};
    uint8_t page[PAGE];

    for (uint32_t i = 0; i < PAGES; i++) {
        memset(page, (int)i, sizeof page);
        assert_int_equal(d.copy_to_device(memory + POOL + i * PAGE, page, PAGE), CUDA_SUCCESS);
    }
    put_list(5);
    in.hang_kernels(0);
    assert_int_equal(launch_blocks(memory + POOL, stream), CUDA_SUCCESS);
    in.look(block, memory + BLOCKS, sizeof block);
    assert_int_equal(block[0], 0xa5a5a5a5a5a5a5a5); /* nothing was written yet */
    in.go_on(0);
    assert_int_equal(waited(), CUDA_SUCCESS);
    in.look(block, memory + BLOCKS, sizeof block);
    assert_int_equal(block[0], block[1]); /* both of page 3 */
    assert_int_not_equal(block[0], block[2]);
    assert_int_not_equal(block[10], 0xa5a5a5a5a5a5a5a5);
}

TEST(standin_takes_modules_of_ours_alone_and_kernels_by_their_names)
{
    CUfunction f;
    CUmodule other;

    assert_int_equal(d.module_load(&other, "a module of somebody else's"),
                     CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(d.module_load(&other, "\x50\xed\x55\xba, as nvcc has it"), CUDA_SUCCESS);
    assert_int_equal(d.module_function(&f, other, "tern_none"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(d.module_unload(other), CUDA_SUCCESS);
    assert_int_equal(d.module_function(&f, other, "tern_gather"), CUDA_ERROR_INVALID_VALUE);
    d.context_set(NULL);
    assert_int_equal(d.module_load(&other, "\x50\xed\x55\xba"), CUDA_ERROR_INVALID_CONTEXT);
}

/* Each accesses a page that does not exist, or not its own: behind the memory, or without
 * access. */
TEST(standin_kernel_that_reaches_too_far_loses_its_device)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr closed;

    put_list(GRANULE / PAGE);
    assert_int_equal(launch_blocks(memory + POOL, stream), CUDA_SUCCESS);
    assert_int_equal(waited(), CUDA_ERROR_ILLEGAL_ADDRESS);
    in.let_fail("", 0, CUDA_SUCCESS);
    put_list(5);
    assert_int_equal(d.mem_create(&handle, GRANULE, &prop, 0), CUDA_SUCCESS);
    assert_int_equal(d.address_reserve(&closed, GRANULE, GRANULE, 0, 0), CUDA_SUCCESS);
    assert_int_equal(d.mem_map(closed, GRANULE, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(launch_blocks(closed, stream), CUDA_SUCCESS);
    assert_int_equal(waited(), CUDA_ERROR_ILLEGAL_ADDRESS);
    in.let_fail("", 0, CUDA_SUCCESS);
    assert_int_equal(d.mem_unmap(closed, GRANULE), CUDA_SUCCESS);
    assert_int_equal(d.address_free(closed, GRANULE), CUDA_SUCCESS);
    assert_int_equal(d.mem_release(handle), CUDA_SUCCESS);
    assert_int_equal(launch_blocks(memory + POOL, stream), CUDA_SUCCESS);
    assert_int_equal(waited(), CUDA_SUCCESS);
}

TEST(standin_kernel_runs_in_the_context_of_its_module)
{
    CUstream other;

    put_list(5);
    assert_int_equal(d.context_set(context[1]), CUDA_SUCCESS);
    assert_int_equal(d.stream_create(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(launch_blocks(memory + POOL, other), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(launch_blocks(memory + POOL, stream), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(d.stream_destroy(other), CUDA_SUCCESS);
}

/* ---- who takes something from a kernel ---- */

static int dies_of(void (*what)(void))
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(SIGABRT, SIG_DFL);
        put_list(5);
        in.hang_kernels(0);
        if (launch_blocks(memory + POOL, stream) == CUDA_SUCCESS)
            what();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void unload(void)
{
    d.module_unload(module);
}

static void free_memory(void)
{
    d.mem_free(memory);
}

TEST(standin_ends_who_takes_memory_or_a_module_from_a_kernel)
{
    assert_int_equal(dies_of(unload), SIGABRT);
    assert_int_equal(dies_of(free_memory), SIGABRT);
}
