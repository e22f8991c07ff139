; The machine code of xla.py: the handler that XLA calls for every program, a function of XLA's typed FFI.

@nowhere = internal global [16 x i8] zeroinitializer, align 16

; ptr (XLA_FFI_CallFrame *): null, or an XLA_FFI_Error.
define ptr @handler(ptr %frame) {
  %extension_place = getelementptr i8, ptr %frame, i64 $Frame.EXTENSION
  %extension = load ptr, ptr %extension_place
  %is_plain = icmp eq ptr %extension, null
  br i1 %is_plain, label %execute, label %extended
extended:
  %type_place = getelementptr i8, ptr %extension, i64 $Extension.TYPE
  %type = load i32, ptr %type_place
  %is_metadata = icmp eq i32 %type, $METADATA
  br i1 %is_metadata, label %describe, label %execute
describe:
  %metadata_place = getelementptr i8, ptr %extension, i64 $Extension.METADATA
  %metadata = load ptr, ptr %metadata_place
  %major = getelementptr i8, ptr %metadata, i64 $Metadata.MAJOR
  %minor = getelementptr i8, ptr %metadata, i64 $Metadata.MINOR
  %traits = getelementptr i8, ptr %metadata, i64 $Metadata.TRAITS
  store i32 $MAJOR, ptr %major
  store i32 $MINOR, ptr %minor
  store i32 0, ptr %traits
  ret ptr null
execute:
  ; The one attribute is the address of the words of the program.
  %attributes_place = getelementptr i8, ptr %frame, i64 $Frame.ATTRIBUTES
  %attributes = load ptr, ptr %attributes_place
  %scalar = load ptr, ptr %attributes
  %number_place = getelementptr i8, ptr %scalar, i64 $Scalar.VALUE
  %number = load ptr, ptr %number_place
  %words = load ptr, ptr %number
$WORDS
  %feeds = load i64, ptr %FEEDS
  %results = load i64, ptr %RESULTS
  %records = load ptr, ptr %RECORDS
  %entry = load ptr, ptr %ENTRY
  %both = add i64 %feeds, %results
  %table = alloca ptr, i64 %both, align 16
  %strides = alloca i64, i64 %both, align 16
  %given_place = getelementptr i8, ptr %frame, i64 $Frame.ARGUMENT_COUNT
  %given = load i64, ptr %given_place
  %wanted_place = getelementptr i8, ptr %frame, i64 $Frame.RESULT_COUNT
  %wanted = load i64, ptr %wanted_place
  %feeds_fit = icmp eq i64 %given, %feeds
  %results_fit = icmp eq i64 %wanted, %results
  %counts_fit = and i1 %feeds_fit, %results_fit
  br i1 %counts_fit, label %sized, label %wrong
sized:
  ; Results have all axes of the batch: the first of them says how many calls there are.
  %arguments_place = getelementptr i8, ptr %frame, i64 $Frame.ARGUMENTS
  %arguments = load ptr, ptr %arguments_place
  %outputs_place = getelementptr i8, ptr %frame, i64 $Frame.RESULTS
  %outputs = load ptr, ptr %outputs_place
  %first = load ptr, ptr %outputs
  %first_record = getelementptr i64, ptr %records, i64 0
  %first_result = mul i64 %feeds, $Record.COUNT
  %result_record = getelementptr i64, ptr %first_record, i64 %first_result
  %axes = call i64 @extra(ptr %first, ptr %result_record)
  %batched = icmp sge i64 %axes, 0
  br i1 %batched, label %counted, label %wrong
counted:
  %calls = call i64 @product(ptr %first, i64 %axes)
  br label %look
look:
  %i = phi i64 [ 0, %counted ], [ %i_next, %looked ]
  %all_seen = icmp eq i64 %i, %both
  br i1 %all_seen, label %start, label %see
see:
  %is_feed = icmp slt i64 %i, %feeds
  %j = sub i64 %i, %feeds
  %argument_place = getelementptr ptr, ptr %arguments, i64 %i
  %output_place = getelementptr ptr, ptr %outputs, i64 %j
  %buffer_place = select i1 %is_feed, ptr %argument_place, ptr %output_place
  %buffer = load ptr, ptr %buffer_place
  %record_offset = mul i64 %i, $Record.COUNT
  %record = getelementptr i64, ptr %records, i64 %record_offset
  %own_axes = call i64 @extra(ptr %buffer, ptr %record)
  %has_batch = icmp eq i64 %own_axes, %axes
  %has_none = icmp eq i64 %own_axes, 0
  %may_have_none = and i1 %has_none, %is_feed
  %axes_fit = or i1 %has_batch, %may_have_none
  br i1 %axes_fit, label %compare, label %wrong
compare:
  %own_calls = call i64 @product(ptr %buffer, i64 %own_axes)
  %same_calls = icmp eq i64 %own_calls, %calls
  %calls_fit = or i1 %same_calls, %may_have_none
  %fits = call i1 @fits(ptr %buffer, ptr %record, i64 %own_axes)
  %is_right = and i1 %calls_fit, %fits
  br i1 %is_right, label %looked, label %wrong
looked:
  %data_place = getelementptr i8, ptr %buffer, i64 $ForeignBuffer.DATA
  %data = load ptr, ptr %data_place
  %is_null = icmp eq ptr %data, null
  %address = select i1 %is_null, ptr @nowhere, ptr %data
  %entry_place = getelementptr ptr, ptr %table, i64 %i
  store ptr %address, ptr %entry_place
  %nbytes_place = getelementptr i64, ptr %record, i64 $Record.NBYTES
  %nbytes = load i64, ptr %nbytes_place
  %stride = select i1 %may_have_none, i64 0, i64 %nbytes
  %stride_place = getelementptr i64, ptr %strides, i64 %i
  store i64 %stride, ptr %stride_place
  %i_next = add i64 %i, 1
  br label %look
start:
  %result_table = getelementptr ptr, ptr %table, i64 %feeds
  br label %next
next:
  %call = phi i64 [ 0, %start ], [ %call_next, %moved ]
  %ended = icmp sge i64 %call, %calls
  br i1 %ended, label %done, label %run
run:
  %status = call i32 %entry(ptr %table, ptr %result_table, ptr null)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %fail, label %on
on:
  %call_next = add i64 %call, 1
  br label %move
move:
  %k = phi i64 [ 0, %on ], [ %k_next, %step ]
  %all_moved = icmp eq i64 %k, %both
  br i1 %all_moved, label %moved, label %step
step:
  %at_place = getelementptr ptr, ptr %table, i64 %k
  %at = load ptr, ptr %at_place
  %by_place = getelementptr i64, ptr %strides, i64 %k
  %by = load i64, ptr %by_place
  %further = getelementptr i8, ptr %at, i64 %by
  store ptr %further, ptr %at_place
  %k_next = add i64 %k, 1
  br label %move
moved:
  br label %next
done:
  ret ptr null
fail:
  ; Statuses of checks count from 1; texts[0] is of all others.
  %texts = load ptr, ptr %TEXTS
  %checks = load i64, ptr %CHECKS
  %status_long = sext i32 %status to i64
  %is_positive = icmp sgt i64 %status_long, 0
  %is_known = icmp sle i64 %status_long, %checks
  %is_check = and i1 %is_positive, %is_known
  %which = select i1 %is_check, i64 %status_long, i64 0
  %text_place = getelementptr ptr, ptr %texts, i64 %which
  %text = load ptr, ptr %text_place
  %code = select i1 %is_check, i32 $FAILED_CHECK, i32 $NO_MEMORY
  %failure = call ptr @error(ptr %frame, ptr %text, i32 %code)
  ret ptr %failure
wrong:
  %mismatch = load ptr, ptr %MISMATCH
  %refusal = call ptr @error(ptr %frame, ptr %mismatch, i32 $WRONG_CALL)
  ret ptr %refusal
}

; How many axes a buffer has before those of its record; negative where its dtype is another.
define internal i64 @extra(ptr %buffer, ptr %record) {
  %dtype_place = getelementptr i8, ptr %buffer, i64 $ForeignBuffer.DTYPE
  %dtype = load i32, ptr %dtype_place
  %rank_place = getelementptr i8, ptr %buffer, i64 $ForeignBuffer.RANK
  %rank = load i64, ptr %rank_place
  %own_dtype_place = getelementptr i64, ptr %record, i64 $Record.DTYPE
  %own_dtype = load i64, ptr %own_dtype_place
  %own_rank_place = getelementptr i64, ptr %record, i64 $Record.RANK
  %own_rank = load i64, ptr %own_rank_place
  %long = zext i32 %dtype to i64
  %same = icmp eq i64 %long, %own_dtype
  %more = sub i64 %rank, %own_rank
  %result = select i1 %same, i64 %more, i64 -1
  ret i64 %result
}

; The product of the first sizes of a buffer.
define internal i64 @product(ptr %buffer, i64 %axes) {
entry:
  %dims_place = getelementptr i8, ptr %buffer, i64 $ForeignBuffer.DIMS
  %dims = load ptr, ptr %dims_place
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_next, %turn ]
  %total = phi i64 [ 1, %entry ], [ %total_next, %turn ]
  %ended = icmp sge i64 %i, %axes
  br i1 %ended, label %done, label %turn
turn:
  %place = getelementptr i64, ptr %dims, i64 %i
  %size = load i64, ptr %place
  %total_next = mul i64 %total, %size
  %i_next = add i64 %i, 1
  br label %next
done:
  ret i64 %total
}

; True if the last sizes of a buffer are those of its record, and its address is a multiple of the size of an element.
define internal i1 @fits(ptr %buffer, ptr %record, i64 %axes) {
entry:
  %dims_place = getelementptr i8, ptr %buffer, i64 $ForeignBuffer.DIMS
  %dims = load ptr, ptr %dims_place
  %rank_place = getelementptr i64, ptr %record, i64 $Record.RANK
  %rank = load i64, ptr %rank_place
  %shape_place = getelementptr i64, ptr %record, i64 $Record.SHAPE
  %shape = load ptr, ptr %shape_place
  %mask_place = getelementptr i64, ptr %record, i64 $Record.MASK
  %mask = load i64, ptr %mask_place
  %data_place = getelementptr i8, ptr %buffer, i64 $ForeignBuffer.DATA
  %data = load i64, ptr %data_place
  %low = and i64 %data, %mask
  %is_aligned = icmp eq i64 %low, 0
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_next, %turn ]
  %so_far = phi i1 [ %is_aligned, %entry ], [ %both, %turn ]
  %ended = icmp sge i64 %i, %rank
  br i1 %ended, label %done, label %turn
turn:
  %axis = add i64 %i, %axes
  %place = getelementptr i64, ptr %dims, i64 %axis
  %size = load i64, ptr %place
  %own_place = getelementptr i64, ptr %shape, i64 %i
  %own = load i64, ptr %own_place
  %same = icmp eq i64 %size, %own
  %both = and i1 %so_far, %same
  %i_next = add i64 %i, 1
  br label %next
done:
  ret i1 %so_far
}

; An XLA_FFI_Error with a text, which XLA copies.
define internal ptr @error(ptr %frame, ptr %text, i32 %code) {
  %arguments = alloca [32 x i8], align 8
  %api_place = getelementptr i8, ptr %frame, i64 $Frame.API
  %api = load ptr, ptr %api_place
  %create_place = getelementptr i8, ptr %api, i64 $Api.ERROR_CREATE
  %create = load ptr, ptr %create_place
  %extension_place = getelementptr i8, ptr %arguments, i64 $ErrorArguments.EXTENSION
  %message_place = getelementptr i8, ptr %arguments, i64 $ErrorArguments.MESSAGE
  %code_place = getelementptr i8, ptr %arguments, i64 $ErrorArguments.CODE
  store i64 $ErrorArguments.SIZE, ptr %arguments
  store ptr null, ptr %extension_place
  store ptr %text, ptr %message_place
  store i32 %code, ptr %code_place
  %made = call ptr %create(ptr %arguments)
  ret ptr %made
}
