"""What the benchmarks say of the machine they ran on."""


def cpu_name() -> str:
    lines = open("/proc/cpuinfo", encoding="utf-8")
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "?")
