// Native [LIBRARY [asked]]: a Java program. With a library it uses CUDA through it, else only
// threads and a child process of Java's. `asked`: it has work in flight, prints "ready", and waits
// for SIGTERM or SIGINT, at which Java runs its shutdown hook.
public class Native {
    static native long useCuda();
    static native void leaveInFlight();
    static native void finishWork();

    static void beAskedToEnd() throws Exception {
        leaveInFlight();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            finishWork();
            System.out.println("finished");
        }));
        System.out.println("ready");
        Thread.sleep(3_600_000);
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 1) {
            System.load(arguments[0]);
            beAskedToEnd();
        }
        long[] sum = new long[1];
        Thread thread = new Thread(() -> { for (int i = 0; i < 8; i++) sum[0] += i * i; });
        thread.start();
        thread.join();
        System.out.println("sum " + sum[0]);
        if (arguments.length > 0) {
            System.load(arguments[0]);
            System.out.println("launches " + useCuda());
        }
        Process child = new ProcessBuilder("echo", "child").redirectErrorStream(true).start();
        System.out.print(new String(child.getInputStream().readAllBytes()));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook")));
        System.exit(9);
    }
}
