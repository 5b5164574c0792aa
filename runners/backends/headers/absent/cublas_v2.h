// Used where the toolkit has no such library: torch's headers name the handle and the status, and nothing else of it.
#pragma once
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
